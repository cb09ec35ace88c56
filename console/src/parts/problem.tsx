/**
 * Why something is refused or has failed.
 */
import { Icon } from './icon.tsx';

/** Shown, and read to those who use a screen reader, as soon as there is a text. */
export function Problem({ text }: { text: string | undefined }) {
  if (text === undefined) return null;
  return (
    <p class="problem" role="alert">
      <Icon name="failing" />
      {text}
    </p>
  );
}
