/// Peers with unread messages, and those of which none is read while their last one is carried out in several passes.
extension StreamPort {
    /// Whether a peer may have sent more than its last turn processed.
    func hasUnread(_ number: UInt64) -> Bool { peers[number]?.isReady ?? false }

    /// Reads no further message of a peer, whose last one is still being carried out. Its loss is reported after them.
    func hold(_ number: UInt64) {
        guard let peer = peers[number], !peer.isHeld else { return }
        peer.isHeld = true
        held.append(number)
    }

    /// Reads messages of held peers again.
    ///
    /// - Parameter isBusy: Whether a peer's last message is still being carried out.
    func releaseHeld(unless isBusy: (UInt64) -> Bool) {
        guard !held.isEmpty else { return }
        for number in held where !isBusy(number) {
            guard let peer = peers[number] else { continue }
            peer.isHeld = false
            note(peer)
        }
        held.removeAll { peers[$0]?.isHeld != true }
    }
}
