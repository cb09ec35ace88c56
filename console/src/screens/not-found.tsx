/**
 * An address of the console that matches nothing.
 */
import { useLocation } from 'preact-iso';
import { Empty, PageHead } from '../parts/page.tsx';
import { texts } from '../texts.ts';

export function NotFound() {
  const { path } = useLocation();
  return (
    <>
      <PageHead title={texts.notFound.title} note={<span class="mono">{path}</span>} />
      <Empty text={texts.notFound.text}>
        <div class="actions">
          <a class="button is-first" href="/console">
            {texts.notFound.back}
          </a>
        </div>
      </Empty>
    </>
  );
}
