/**
 * The messages that one notification sends in turn: the transfer, after a reorg a removal notice, the transfer again when it
 * was mined again. Each has the next revision.
 */
type MessageKind = 'transfer' | 'removal';

export function messageKind({ revision }: { revision: number }): MessageKind {
  return revision % 2 === 0 ? 'transfer' : 'removal';
}
