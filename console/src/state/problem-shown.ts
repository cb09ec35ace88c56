/**
 * Whether the page itself shows the problem of the service, so that the strip above it needn't.
 */
import { type Signal, signal } from '@preact/signals';
import { useLayoutEffect } from 'preact/hooks';

export const isProblemShown: Signal<boolean> = signal(false);

/** Call it in what shows the problem. */
export function useProblemShown(): void {
  useLayoutEffect(() => {
    isProblemShown.value = true;
    return () => {
      isProblemShown.value = false;
    };
  }, []);
}
