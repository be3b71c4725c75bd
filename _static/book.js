// A formula that is wider than its place scrolls there, and then the keyboard reaches it, too.
function fitFormulas() {
  document.querySelectorAll("article .math").forEach((box, before) => {
    box.classList.remove("wide");
    const room = box.parentElement.clientWidth;
    const width = Math.max(box.scrollWidth, box.firstElementChild.getBoundingClientRect().width);
    box.classList.toggle("wide", room > 0 && width > room);
    const told = { tabindex: "0", role: "region", "aria-label": `Formula ${before + 1}` };
    for (const [name, value] of Object.entries(told)) {
      if (box.matches(".wide")) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  });
}
addEventListener("load", fitFormulas);
addEventListener("resize", fitFormulas);
