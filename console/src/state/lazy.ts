/**
 * Parts of the page that are loaded when they are needed.
 */
import { signal } from '@preact/signals';
import type { ComponentType } from 'preact';
import { lazy } from 'preact-iso';

const AGAIN_MS = 2_000;
/** A service that takes longer counts as away. */
const ANSWER_MS_MAX = 10_000;

/** Whether a part of the page could not be loaded although the service answers: it may have a newer console now. */
export const isOutdated = signal(false);

/**
 * A component whose file is loaded when it is shown first. A browser remembers that a file could not be loaded, so if the service
 * was away, the whole page is loaded again once it is back.
 */
export const onDemand = <P>(load: () => Promise<ComponentType<P>>): ComponentType<P> =>
  lazy(() =>
    load().catch(async () => {
      isOutdated.value = await answers();
      if (isOutdated.value) return () => null;
      do await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      while (!(await answers()));
      location.reload();
      return new Promise<never>(() => {});
    }),
  );

const answers = (): Promise<boolean> =>
  fetch(location.href, {
    ...{ cache: 'no-store', credentials: 'omit' },
    signal: AbortSignal.timeout(ANSWER_MS_MAX),
  }).then(
    ({ ok }) => ok,
    () => false,
  );
