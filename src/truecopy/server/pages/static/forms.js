// Makes forms handier; each works without it, and the server checks everything again.

// A box that ticks all boxes of its form.
document.addEventListener("change", ({ target }) => {
  if (!target.dataset.ticks) return;
  target.form.querySelectorAll(`input[name="${target.dataset.ticks}"]`).forEach((box) => { box.checked = target.checked; });
});

// A button that waits until the name is written.
document.querySelectorAll("input[data-expects]").forEach((field) => {
  const buttons = [...field.form.querySelectorAll("button")];
  const look = () => buttons.forEach((button) => { button.disabled = field.value !== field.dataset.expects; });
  field.addEventListener("input", look);
  look();
});

// A form is sent once, however often its button is pressed.
document.addEventListener("submit", (event) => {
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "yes";
});
window.addEventListener("pageshow", () => {
  document.querySelectorAll("form").forEach((form) => { delete form.dataset.sent; });
});

// A page that was asked to be printed.
document.querySelectorAll("button[data-prints]").forEach((button) => {
  button.hidden = false;
  button.addEventListener("click", () => window.print());
});
