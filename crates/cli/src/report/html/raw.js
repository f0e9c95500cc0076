// The data of the page as a file. Left to right: an escaped backslash before u003c is not the escape of "<".
(() => {
  const data = document.getElementById("data");
  const link = document.getElementById("raw");
  if (!data || !link) return;
  const json = data.textContent.replace(/\\(u003c|[^])/g, (all, escape) => (escape === "u003c" ? "<" : all));
  link.href = URL.createObjectURL(new Blob([json], { type: "application/json" }));
  link.hidden = false;
})();
