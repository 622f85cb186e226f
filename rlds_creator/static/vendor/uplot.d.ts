/** The part of uPlot that the pages use. */

type Bound = number | null;

interface Axis {
  scale?: string;
  side?: number;
  size?: number;
  space?: number;
  gap?: number;
  font?: string;
  stroke?: () => string;
  grid?: { show?: boolean; stroke?: () => string; width?: number };
  ticks?: { show: boolean };
  values?: (plot: uPlot, ticks: number[]) => string[];
}

interface Series {
  label?: string;
  scale?: string;
  stroke?: () => string;
  fill?: () => string;
  width?: number;
  paths?: Paths;
  points?: { show: boolean };
  show?: boolean;
  dash?: number[];
}

interface Paths {
  (plot: uPlot, series: number, from: number, to: number): unknown;
}

interface Options {
  width: number;
  height: number;
  padding?: [number, number, number, number];
  legend?: { show: boolean };
  cursor?: {
    y?: boolean;
    points?: { show: boolean };
    drag?: { x: boolean; y: boolean; setScale: boolean; dist: number };
    bind?: Record<string, () => null>;
    /** Charts with the same key show the cursor of each other. */
    sync?: { key: string; scales: [string, null]; filters: { pub: (type: string) => boolean } };
  };
  scales?: Record<string, { time?: boolean; range?: (plot: uPlot, min: Bound, max: Bound) => [Bound, Bound] }>;
  axes?: Axis[];
  series: Series[];
  hooks?: { drawAxes?: Hook[]; draw?: Hook[]; setSelect?: Hook[]; setCursor?: Hook[] };
}

type Hook = (plot: uPlot) => void;

declare class uPlot {
  constructor(options: Options, data: Bound[][], target: HTMLElement);

  static paths: {
    bars(options: { size: [number, number]; align: -1 | 0 | 1 }): Paths;
    stepped(options: { align: -1 | 1 }): Paths;
  };

  readonly over: HTMLDivElement;
  readonly ctx: CanvasRenderingContext2D;
  readonly width: number;
  readonly height: number;
  readonly bbox: { left: number; top: number; width: number; height: number };
  readonly select: { left: number; top: number; width: number; height: number };
  readonly cursor: { idx?: number | null };
  readonly series: { show?: boolean }[];
  readonly scales: Record<string, { min: number; max: number }>;

  /** In pixels of the page, or of the canvas. */
  valToPos(value: number, scale: string, isCanvas?: boolean): number;
  posToVal(position: number, scale: string): number;
  setSeries(series: number, change: { show: boolean }): void;
  setScale(scale: string, limits: { min: number; max: number }): void;
  setSelect(area: { left: number; top: number; width: number; height: number }, isHook?: boolean): void;
  setSize(size: { width: number; height: number }): void;
  redraw(isRebuilt?: boolean, isAxes?: boolean): void;
  destroy(): void;
}

export { type Axis, uPlot as default };
