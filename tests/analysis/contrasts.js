// Of every text that is shown: its contrast to the ground it stands on (WCAG 2.2, "contrast ratio").
() => {
  const part = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).map(Number).map(part);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const own = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  return [...document.querySelectorAll("body *")].filter(own).filter((element) => element.checkVisibility()).map((element) => {
    const style = getComputedStyle(element);
    const svg = element.namespaceURI.endsWith("svg");
    const [a, b] = [light(svg ? style.fill : style.color), light(ground(element))].sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), element.tagName + "." + element.className];
  });
}
