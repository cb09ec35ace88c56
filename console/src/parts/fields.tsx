/**
 * Fields of forms, each with its label, its note and its problem.
 */
import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import { Problem } from './problem.tsx';

type TextProps = {
  label: string;
  value: string;
  onInput(value: string): void;
  placeholder?: string;
  note?: ComponentChildren;
  problem?: string | undefined;
  isMono?: boolean;
  isRequired?: boolean;
  inputMode?: 'text' | 'numeric' | 'decimal';
};

export function TextField(props: TextProps) {
  const {
    label,
    value,
    onInput,
    placeholder = '',
    note,
    problem,
    isMono = false,
    isRequired = false,
  } = props;
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        class={isMono ? 'input mono' : 'input'}
        type="text"
        inputMode={props.inputMode ?? 'text'}
        value={value}
        placeholder={placeholder}
        required={isRequired}
        autocomplete="off"
        spellcheck={false}
        aria-invalid={problem !== undefined}
        aria-describedby={`${id}-note`}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <div id={`${id}-note`}>
        <Problem text={problem} />
        {note !== undefined && <p class="field-note">{note}</p>}
      </div>
    </div>
  );
}

export function SelectField({
  label,
  value,
  options,
  onChange,
  note,
}: {
  label: string;
  value: string;
  options: readonly (readonly [value: string, text: string])[];
  onChange(value: string): void;
  note?: ComponentChildren;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} class="input" value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([one, text]) => (
          <option key={one} value={one}>
            {text}
          </option>
        ))}
      </select>
      {note !== undefined && <p class="field-note">{note}</p>}
    </div>
  );
}

export function Check({
  label,
  note,
  value,
  onChange,
}: {
  label: string;
  note?: ComponentChildren;
  value: boolean;
  onChange(value: boolean): void;
}) {
  return (
    <label class="check">
      <input type="checkbox" checked={value} onChange={(event) => onChange(event.currentTarget.checked)} />
      <span>
        {label}
        {note !== undefined && <small>{note}</small>}
      </span>
    </label>
  );
}
