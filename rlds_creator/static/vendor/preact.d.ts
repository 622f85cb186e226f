/** The part of Preact that the pages use. */

/** What a component returns; only Preact looks into it. */
export interface VNode {
  type: unknown;
  props: unknown;
}

export interface Context<T> {
  Provider(props: { value: T; children?: unknown }): VNode;
}

export class Component<P = {}, S = {}> {
  constructor(props: P);
  props: P;
  state: S;
  setState(changes: Partial<S>): void;
}

export function h(type: unknown, props: object | null, ...children: unknown[]): VNode;
export function Fragment(props: { children?: unknown }): VNode;
export function createContext<T>(value: T): Context<T>;
export function render(vnode: VNode, parent: Element): void;
