/**
 * A section of a page with its heading.
 */
import type { ComponentChildren } from 'preact';

export function Section({
  id,
  title,
  note,
  children,
}: {
  id: string;
  title: string;
  note?: string;
  children: ComponentChildren;
}) {
  return (
    <section aria-labelledby={`section-${id}`}>
      <div class="section-head">
        <h2 id={`section-${id}`}>{title}</h2>
        {note !== undefined && <span>{note}</span>}
      </div>
      {children}
    </section>
  );
}
