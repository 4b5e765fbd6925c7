internal import CLibCares

/// Events recorded by c-ares' callbacks until the owner takes them, because a callback must not act.
final class ResolverNotes {
    /// Latest interest in each descriptor since the owner last took them.
    var interests: [Int32: ResolverInterest] = [:]
    var finished: [FinishedLookup] = []
}

/// Context of one lookup's callback. Retained when the lookup starts, released by its single callback.
final class LookupContext {
    let name: String
    let notes: ResolverNotes

    init(name: String, notes: ResolverNotes) {
        self.name = name
        self.notes = notes
    }

    /// Starts the lookup. Its result, which may arrive before this returns, is recorded.
    func start(on channel: ares_channel) {
        var hints = ares_addrinfo_hints()
        hints.ai_family = AF_UNSPEC
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        unsafe ares_getaddrinfo(
            channel, name, nil, &hints, lookupFinished, Unmanaged.passRetained(self).toOpaque())
    }

    func finished(status: Int32, addresses: [ResolvedAddress]) {
        let result: Result<[ResolvedAddress], LookupFailure> =
            if status != ARES_SUCCESS {
                .failure(LookupFailure(status: status))
            } else if addresses.isEmpty {
                .failure(.notFound)
            } else {
                .success(addresses)
            }
        notes.finished.append(FinishedLookup(name: name, result: result))
    }
}

func interestChanged(context: UnsafeMutableRawPointer?, descriptor: ares_socket_t, reads: Int32, writes: Int32) {
    guard let context = unsafe context else { return }
    let notes = unsafe Unmanaged<ResolverNotes>.fromOpaque(context).takeUnretainedValue()
    notes.interests[descriptor] = ResolverInterest(descriptor: descriptor, reads: reads != 0, writes: writes != 0)
}

private func lookupFinished(
    context: UnsafeMutableRawPointer?, status: Int32, timeouts: Int32, found: UnsafeMutablePointer<ares_addrinfo>?
) {
    var addresses: [ResolvedAddress] = []
    if let found = unsafe found {
        var next = unsafe found.pointee.nodes
        while let node = unsafe next {
            if let address = unsafe ResolvedAddress(node.pointee) { addresses.append(address) }
            unsafe next = node.pointee.ai_next
        }
        unsafe ares_freeaddrinfo(found)
    }
    guard let context = unsafe context else { return }
    let lookup = unsafe Unmanaged<LookupContext>.fromOpaque(context).takeRetainedValue()
    lookup.finished(status: status, addresses: addresses)
}
