// The two helpers that make and find elements.

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
