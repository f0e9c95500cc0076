"use strict";
// Without this script each point keeps its <title>, which browsers show on their own.
(() => {
  const reach = 32;
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
    for (const title of svg.querySelectorAll("circle > title, rect > title")) {
      points.push({ circle: title.parentNode, text: title.textContent });
      title.remove();
    }
    svg.addEventListener("pointermove", (event) => {
      let best = null;
      let least = reach * reach;
      for (const point of points) {
        const box = point.circle.getBoundingClientRect();
        const across = Math.max(box.left - event.clientX, 0, event.clientX - box.right);
        const down = Math.max(box.top - event.clientY, 0, event.clientY - box.bottom);
        const distance = across * across + down * down;
        if (distance < least) [best, least] = [point, distance];
      }
      if (best) show(best.circle, best.text);
      else leave();
    });
    svg.addEventListener("pointerleave", leave);
  }
})();
