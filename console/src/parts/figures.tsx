/**
 * A row of figures: a label, one number with its unit, and a line that puts it into context.
 */
import type { ComponentChildren } from 'preact';
import { texts } from '../texts.ts';
import { Icon, type IconName } from './icon.tsx';

export function Figures({ children }: { children: ComponentChildren }) {
  return <dl class="figures">{children}</dl>;
}

type FigureProps = {
  label: string;
  /** Undefined: there is no value, and the note says why. */
  value: ComponentChildren;
  unit?: string | undefined;
  note?: ComponentChildren;
  noteIcon?: IconName | undefined;
  tone?: '' | 'is-warn' | 'is-bad';
  /** The value is an old one, because the newest can't be loaded. */
  isOld?: boolean;
};

export function Figure({ label, value, unit = '', note, noteIcon, tone = '', isOld = false }: FigureProps) {
  return (
    <div>
      <dt>{label}</dt>
      <dd class={`value ${isOld ? 'is-old' : ''}`}>
        {value ?? <span class="quiet">{texts.none}</span>}
        {value !== undefined && unit !== '' && <span class="is-unit"> {unit}</span>}
      </dd>
      <dd class={`note ${tone}`}>
        {noteIcon !== undefined && <Icon name={noteIcon} />}
        {note}
      </dd>
    </div>
  );
}
