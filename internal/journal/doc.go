// Package journal keeps framed records in a directory so that they survive a crash.
//
// It knows nothing of tables: an entry is a generation and opaque bytes, a snapshot is a stream of bytes. Read [Journal.Recover]
// first, then [Journal.Commit].
//
// # Files
//
// A directory holds journals and snapshots by number, the file lock, and small values by name:
//
//	table.00000007.snapshot   the state when journal 7 began
//	table.00000007.journal    the entries behind it
//	table.00000008.journal    more of them, while snapshot 8 is being written
//	lock                      held while the directory is in use; the text is the pid of the holder
//	table.00000007.journal.damaged-1   what a repair cut off
//
// Invariant: snapshot N exists only where journal N does, since the journal is made first. The first journal is number 1 and has no snapshot.
// Invariant: snapshot N with the journals N, N+1, ... is the whole state; whatever is older is not needed.
//
// Numbers in files are little endian. Both kinds begin with the same 32 bytes:
//
//	magic [8]byte, version u32, crc32c u32 of these 32 bytes without itself, number u64, base u64
//
// where base is the generation of the last entry before the file. A snapshot goes on with its bytes and ends with their length
// (u64) and a crc32c of all before it (u32). A journal goes on with frames, each padded with zeros to a multiple of 8:
//
//	crc32c u32, length u32, generation u64, group u64, payload [length]byte
//
// The checksum is over all of the frame behind it, and begins with the number of the journal and the offset of the frame: a frame is right
// only where it was written, so neither a payload that looks like a frame nor an old block of the disk is taken for an entry. group is the
// offset where the [Journal.Commit] began that wrote the frame; a frame with a group behind some offset shows that what is before this
// offset was once committed. An entry is there as a whole or not at all; of a commit that was interrupted a first part of the entries may be there.
//
// # Torn or damaged
//
// A crash may leave a half-written end. Where the last journal has a bad frame and no entry of a later commit behind it, the end is torn: it
// was never acknowledged, and is cut off. An entry behind the bad frame says that it is damaged instead, and nothing is changed: see
// [DamageError]. One exception: inside one commit a missing sector (zeros) with entries behind it is torn too, since a disk does not write
// sectors in order. The other way round, a last entry that is there to its end, with no sector missing, was written whole: where its checksum is
// wrong it is damaged, though nothing is behind it, since it may have been acknowledged. A journal that has a successor must reach the base of
// it; what it has behind that was never acknowledged.
package journal
