"use strict";
// Without this script each point keeps its <title>, which browsers show on their own.
(() => {
  const reach = 36;
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  document.body.append(tip);
  let near = null;

  function leave() {
    if (near) near.classList.remove("near");
    near = null;
    tip.hidden = true;
  }

  function show(circle, text) {
    if (circle !== near) {
      leave();
      near = circle;
      circle.classList.add("near");
      tip.textContent = text;
      tip.hidden = false;
    }
    const box = circle.getBoundingClientRect();
    const centre = box.left + box.width / 2;
    const left = Math.min(Math.max(centre - tip.offsetWidth / 2, 8), document.documentElement.clientWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = left + window.scrollX + "px";
    tip.style.top = (above < 4 ? box.bottom + 8 : above) + window.scrollY + "px";
  }

  for (const svg of document.querySelectorAll(".chart svg")) {
    const points = [];
    for (const title of svg.querySelectorAll("circle > title")) {
      points.push({ circle: title.parentNode, text: title.textContent });
      title.remove();
    }
    svg.addEventListener("pointermove", (event) => {
      let best = null;
      let least = reach * reach;
      for (const point of points) {
        const box = point.circle.getBoundingClientRect();
        const across = box.left + box.width / 2 - event.clientX;
        const down = box.top + box.height / 2 - event.clientY;
        const distance = across * across + down * down;
        if (distance < least) [best, least] = [point, distance];
      }
      if (best) show(best.circle, best.text);
      else leave();
    });
    svg.addEventListener("pointerleave", leave);
  }
})();
