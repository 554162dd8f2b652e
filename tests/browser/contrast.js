// Returns the texts of the page whose contrast is below WCAG AA: 4.5, or 3 for large text.
() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const channels = (color, under) => {
    context.clearRect(0, 0, 1, 1);
    if (under) {
      context.fillStyle = under;
      context.fillRect(0, 0, 1, 1);
    }
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((one) => {
      const part = one / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const color = getComputedStyle(one).backgroundColor;
      if (channels(color)[3] === 255) return color;
    }
    return getComputedStyle(document.documentElement).backgroundColor;
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || node.closest(".hidden-text, script, noscript, option, .skip, .step.off") || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const under = ground(node);
    const [front, back] = [luminance(channels(style.color, under)), luminance(channels(under))];
    const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) low.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return low;
}
