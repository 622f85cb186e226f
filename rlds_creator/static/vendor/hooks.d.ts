/** The hooks of Preact that the pages use. */
import type { Context } from "./preact.js";

type Effect = () => void | (() => void);

export function useState<T>(initial: T | (() => T)): [T, (next: T | ((old: T) => T)) => void];
export function useRef<T>(initial: T): { current: T };
export function useEffect(effect: Effect, inputs?: unknown[]): void;
export function useLayoutEffect(effect: Effect, inputs?: unknown[]): void;
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useCallback<F extends Function>(callback: F, inputs: unknown[]): F;
export function useContext<T>(context: Context<T>): T;
export function useId(): string;
