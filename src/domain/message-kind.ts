/**
 * The messages of one notification alternate: the transfer, a removal notice after a reorg, and the transfer again if it was
 * mined again. Each message has the next revision.
 */
type MessageKind = 'transfer' | 'removal';

export function messageKind({ revision }: { revision: number }): MessageKind {
  return revision % 2 === 0 ? 'transfer' : 'removal';
}
