/**
 * A native modal dialog. The browser traps the focus and closes it on Escape. The focus goes back to what opened the dialog or,
 * where that is gone, to the page.
 */
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef } from 'preact/hooks';
import { texts } from '../texts.ts';
import { Icon } from './icon.tsx';
import { Problem } from './problem.tsx';

type Props = {
  title: string;
  onClose(): void;
  isWide?: boolean;
  /** Only its buttons close it, and Escape doesn't. */
  isKept?: boolean;
  /** Where given, the contents are a form that this submits. */
  onSubmit?(): void;
  children: ComponentChildren;
};

/** The element that opened the dialog, or the first of several in a row. */
let opener: Element | null = null;

const hasNoFocus = () => document.activeElement === null || document.activeElement === document.body;

export function Dialog({ title, onClose, isWide = false, isKept = false, onSubmit, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const isGone = useRef(false);
  const id = useId();
  // Before the paint: Escape may follow the click at once.
  useLayoutEffect(() => {
    const { current } = dialog;
    if (!hasNoFocus() && document.activeElement?.closest('dialog') === null) opener = document.activeElement;
    current?.showModal();
    return () => {
      // Its event comes later, when the next dialog may already be open.
      isGone.current = true;
      current?.close();
      setTimeout(() => {
        if (document.querySelector('dialog[open]') !== null || !hasNoFocus()) return;
        for (const element of [opener, document.getElementById('main')])
          if (hasNoFocus() && element instanceof HTMLElement) element.focus({ preventScroll: true });
      });
    };
  }, []);
  useEffect(() => {
    // So may the button that was just pressed.
    if (hasNoFocus()) dialog.current?.focus();
  });
  const contents = (
    <>
      <h2 id={id}>{title}</h2>
      {children}
    </>
  );
  return (
    <dialog
      ref={dialog}
      tabIndex={-1}
      class={isWide ? 'is-wide' : ''}
      aria-labelledby={id}
      {...(isKept && { closedby: 'none' })}
      // For browsers that don't know closedby.
      onCancel={(event) => {
        if (isKept) event.preventDefault();
      }}
      onClose={() => isGone.current || onClose()}
    >
      {onSubmit === undefined ? (
        <div>{contents}</div>
      ) : (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            onSubmit();
          }}
        >
          {contents}
        </form>
      )}
      <button type="button" class="icon-button close" aria-label={texts.close} onClick={onClose}>
        <Icon name="close" />
      </button>
    </dialog>
  );
}

/** The buttons of a dialog that is a form, and why its request was refused. */
export function DialogButtons({
  problem,
  submit,
  onClose,
  isBad = false,
  isDisabled = false,
}: {
  problem?: string | undefined;
  submit: string;
  onClose(): void;
  /** It ends or deletes something. */
  isBad?: boolean;
  isDisabled?: boolean;
}) {
  return (
    <>
      <Problem text={problem} />
      <footer>
        <button type="button" class="button" onClick={onClose}>
          {texts.cancel}
        </button>
        <button type="submit" class={`button ${isBad ? 'is-bad' : 'is-first'}`} disabled={isDisabled}>
          {submit}
        </button>
      </footer>
    </>
  );
}
