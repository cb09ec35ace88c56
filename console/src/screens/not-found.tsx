/**
 * An address of the console that matches nothing.
 */
import { useLocation } from 'preact-iso';
import { Missing } from '../parts/page.tsx';
import { texts } from '../texts.ts';

export function NotFound() {
  const { path } = useLocation();
  return (
    <Missing
      title={texts.notFound.title}
      note={<span class="mono">{path}</span>}
      text={texts.notFound.text}
      href="/console"
      back={texts.notFound.back}
    />
  );
}
