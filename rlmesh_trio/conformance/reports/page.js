(() => {
  const wanted = ["fail", "error", "warn", "known"];
  const found = [...document.querySelectorAll("article")].filter((one) => wanted.includes(one.dataset.verdict));
  let at = -1;
  addEventListener("hashchange", () => {
    const place = found.findIndex((one) => `#${one.id}` === decodeURIComponent(location.hash));
    if (place >= 0) at = place;
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox])")) return;
    const step = { n: 1, p: -1 }[event.key];
    if (!step || !found.length) return;
    at = at < 0 && step < 0 ? found.length - 1 : (at + step + found.length) % found.length;
    location.hash = found[at].id;
  });
})();
