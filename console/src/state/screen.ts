/**
 * The width of the screen, where styles don't suffice.
 */
import { signal } from '@preact/signals';

const small = matchMedia('(max-width: 767px)');
/** Whether lists have rows of two lines, and tables lines for their cells, as in styles/small.css. */
export const isSmall = signal(small.matches);
small.addEventListener('change', () => {
  isSmall.value = small.matches;
});
