// A formula that is wider than its place scrolls there, and then the keyboard reaches it, too.
function fitFormulas() {
  document.querySelectorAll("article .math").forEach((box, before) => {
    box.classList.remove("wide");
    const place = box.matches("div") ? box : box.parentElement;
    const wide = box.firstElementChild.getBoundingClientRect().width > place.clientWidth;
    box.classList.toggle("wide", wide && place.clientWidth > 0);
    const told = { tabindex: "0", role: "region", "aria-label": `Formula ${before + 1}` };
    for (const [name, value] of Object.entries(told)) {
      if (box.matches(".wide")) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  });
}
addEventListener("load", fitFormulas);
addEventListener("resize", fitFormulas);
