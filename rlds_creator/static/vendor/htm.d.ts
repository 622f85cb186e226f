/** Templates: `htm.bind(h)` is the tag of one. */
declare const htm: {
  bind<R>(
    h: (type: unknown, props: object | null, ...children: unknown[]) => R,
  ): (strings: TemplateStringsArray, ...values: unknown[]) => R;
};
export default htm;
