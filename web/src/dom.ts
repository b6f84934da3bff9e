// The helpers that make, find and replace elements.

type Child = Node | string;

/** An element with a class and children; text is never read as markup. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className = '',
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** The page's own element of that id and kind. */
export function find<T extends HTMLElement>(id: string, kind: new () => T): T {
  const element = document.getElementById(id);
  if (!(element instanceof kind)) throw new Error(`the page has no \`${id}\``);
  return element;
}

/** A button that does something; `id` lets it keep the focus when what is around it is drawn anew. */
export function button(text: string, act: () => void, { id = '', label = '', className = '' } = {}): HTMLButtonElement {
  const element = make('button', className, text);
  element.type = 'button';
  if (id) element.id = id;
  if (label) element.setAttribute('aria-label', label);
  element.addEventListener('click', act);
  return element;
}

/** Text only when it changes, so that a screen reader does not repeat itself. */
export function say(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** A message at the field it is about; an empty one clears it. */
export function fault(field: HTMLElement, error: HTMLElement, message: string): void {
  field.setAttribute('aria-invalid', String(message !== ''));
  say(error, message);
  error.hidden = message === '';
}

/** New children in the place of the old ones. What has an id keeps its focus, and stays as open as it was. */
export function swap(parent: HTMLElement, ...children: Child[]): void {
  const focused = parent.contains(document.activeElement) ? document.activeElement?.id : undefined;
  const open = new Map([...parent.querySelectorAll('details')].map((details) => [details.id, details.open]));
  parent.replaceChildren(...children);
  for (const details of parent.querySelectorAll('details')) {
    details.open = open.get(details.id) ?? details.open;
  }
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

/** A long key may break after an underscore, and nowhere else. */
export function breakable(key: string): (string | HTMLElement)[] {
  return key.split(/(?<=_)/).flatMap((word) => [word, make('wbr')]);
}

const SVG = 'http://www.w3.org/2000/svg';

/** An element of a drawing. */
export function draw(tag: string, attributes: Record<string, string | number>, ...children: Child[]): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** Hands `text` to the reader as a file. */
export function download(name: string, type: string, text: string): void {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = make('a');
  [link.href, link.download] = [address, name];
  link.click();
  // The browser has taken the text by the time the click is over; a moment later for all of them.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
