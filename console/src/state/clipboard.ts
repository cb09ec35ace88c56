/**
 * Copies a text. Browsers offer their clipboard only to pages of https and of this machine, so elsewhere a selection is copied.
 */
import { texts } from '../texts.ts';
import { announce } from './announce.ts';

export async function copyText(text: string): Promise<void> {
  // Undefined where the page is neither https nor of this machine, which the types don't say.
  const clipboard = navigator.clipboard as Clipboard | undefined;
  if (clipboard === undefined) copySelection(text);
  else await clipboard.writeText(text);
  announce(texts.copied);
}

function copySelection(text: string): void {
  const place = document.querySelector('dialog[open]') ?? document.body;
  const field = document.createElement('textarea');
  field.className = 'hidden';
  field.value = text;
  place.append(field);
  const former = document.activeElement;
  field.select();
  document.execCommand('copy');
  field.remove();
  if (former instanceof HTMLElement) former.focus();
}
