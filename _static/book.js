// A formula that is wider than the screen scrolls in its box: then the keyboard reaches the box, too.
function reachWideFormulas() {
  document.querySelectorAll("article div.math").forEach((box, before) => {
    const wide = box.scrollWidth > box.clientWidth;
    const told = { tabindex: "0", role: "region", "aria-label": `Formula ${before + 1}` };
    for (const [name, value] of Object.entries(told)) {
      if (wide) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  });
}
addEventListener("load", reachWideFormulas);
addEventListener("resize", reachWideFormulas);
