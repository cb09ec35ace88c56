/**
 * A field that takes a whole address and nothing else.
 */
import { useEffect, useId, useState } from 'preact/hooks';
import { texts } from '../texts.ts';
import { Problem } from './problem.tsx';

type Props = {
  label: string;
  value: string;
  /** Called with an address with 0x in lower case, or undefined for an empty field. */
  onSearch(address: string | undefined): void;
};

export function AddressSearch({ label, value, onSearch }: Props) {
  const id = useId();
  const [text, setText] = useState(value);
  const [problem, setProblem] = useState(false);
  // The address may change without this field, as by the browser's Back.
  useEffect(() => {
    setText(value);
    setProblem(false);
  }, [value]);
  const search = () => {
    const digits = text.trim().replace(/^0x/i, '');
    const isGood = digits === '' || /^[0-9a-fA-F]{40}$/.test(digits);
    setProblem(!isGood);
    if (isGood) onSearch(digits === '' ? undefined : `0x${digits.toLowerCase()}`);
  };
  return (
    <search>
      <form
        class="chips is-search"
        onSubmit={(event) => {
          event.preventDefault();
          search();
        }}
      >
        <div class="field">
          <label class="hidden" for={id}>
            {label}
          </label>
          <input
            id={id}
            class="input is-small mono is-address"
            value={text}
            placeholder={label}
            aria-invalid={problem}
            autocomplete="off"
            spellcheck={false}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </div>
        <button type="submit" class="button">
          {texts.search}
        </button>
        <Problem text={problem ? texts.filters.badAddress : undefined} />
      </form>
    </search>
  );
}
