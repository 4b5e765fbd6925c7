internal import CLibCares
internal import Glibc

/// Names to addresses without blocking: first the hosts file, then DNS (c-ares), driven by descriptors and a time that
/// the owner watches.
///
/// The owner calls `descriptorReady` and `timerFired` as the world says, and after each call to anything here takes
/// `takeInterests()` and `takeFinished()` and asks for `timeoutMilliseconds`. A lookup cannot be cancelled: whoever no
/// longer wants it ignores its result.
@safe public final class Resolver {
    /// The result of `ares_library_init`, run once however many threads ask: a static's initialiser guards that.
    private static let libraryStatus: Int32 = ares_library_init(ARES_LIB_INIT_ALL)

    private let notes: ResolverNotes
    /// Owned; destroyed by `deinit`.
    private let channel: ares_channel

    private init(channel: ares_channel, notes: ResolverNotes) {
        unsafe self.channel = unsafe channel
        self.notes = notes
    }

    /// A resolver that has asked nothing yet.
    ///
    /// - Throws: `CaresError`, `badServers` for a server that is no address.
    public static func make(_ options: ResolverOptions = ResolverOptions()) throws(CaresError) -> Resolver {
        let success = ARES_SUCCESS
        guard libraryStatus == success else { throw CaresError(.notInitialized, status: libraryStatus) }
        let notes = ResolverNotes()
        let (channel, status) = unsafe open(options, notes: notes)
        guard status == success, let channel = unsafe channel else {
            throw CaresError(.notInitialized, status: status)
        }
        let resolver = unsafe Resolver(channel: channel, notes: notes)
        if let servers = options.servers {
            let accepted = unsafe ares_set_servers_ports_csv(channel, servers.joined(separator: ","))
            guard accepted == success else { throw CaresError(.badServers, status: accepted) }
        }
        return resolver
    }

    private static func open(_ options: ResolverOptions, notes: ResolverNotes) -> (ares_channel?, Int32) {
        var native = unsafe ares_options()
        unsafe native.timeout = Int32(clamping: Int(options.attemptTimeout / .milliseconds(1)))
        unsafe native.tries = Int32(clamping: options.tries)
        unsafe native.sock_state_cb = unsafe interestChanged
        unsafe native.sock_state_cb_data = unsafe Unmanaged.passUnretained(notes).toOpaque()
        let mask = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB | ARES_OPT_LOOKUPS
        var channel: ares_channel?
        // The order of lookups is copied: f is the hosts file, b the DNS.
        var lookups = "fb".utf8CString.map { $0 }
        let status = unsafe lookups.withUnsafeMutableBufferPointer { text in
            unsafe native.lookups = text.baseAddress
            return unsafe ares_init_options(&channel, &native, mask)
        }
        return unsafe (channel, status)
    }

    deinit {
        // Calls back for each open lookup, and for each descriptor: the notes are still there.
        unsafe ares_destroy(channel)
    }

    // MARK: Lookups and events

    /// Asks for all addresses of a name. The end can be there at once: see `takeFinished()`.
    public func resolve(_ name: String) {
        let lookup = LookupContext(name: name, notes: notes)
        guard !name.utf8.contains(0) else {
            return lookup.finished(status: ARES_EBADNAME, addresses: [])
        }
        unsafe lookup.start(on: channel)
    }

    /// The descriptor can be read or written. One that has failed counts as both.
    public func descriptorReady(_ descriptor: Int32, reads: Bool, writes: Bool) {
        unsafe ares_process_fd(channel, reads ? descriptor : ARES_SOCKET_BAD, writes ? descriptor : ARES_SOCKET_BAD)
    }

    /// The time that `timeoutMilliseconds` told is there. Harmless when called early.
    public func timerFired() {
        unsafe ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD)
    }

    // MARK: What the owner takes

    /// When to call `timerFired()`, in milliseconds from now, at least 1; nil when no lookup waits for an answer.
    public var timeoutMilliseconds: Int? {
        var time = timeval()
        guard unsafe ares_timeout(channel, nil, &time) != nil else { return nil }
        // c-ares drops the part of a millisecond that is left: without the one more the owner would spin through it.
        return Int(time.tv_sec) * 1000 + Int(time.tv_usec) / 1000 + 1
    }

    /// The descriptors to watch otherwise than before, each once.
    public func takeInterests() -> [DescriptorInterest] {
        guard !notes.interests.isEmpty else { return [] }
        defer { notes.interests.removeAll(keepingCapacity: true) }
        return Array(notes.interests.values)
    }

    /// The lookups that ended, in the order in which they did.
    public func takeFinished() -> [FinishedLookup] {
        guard !notes.finished.isEmpty else { return [] }
        defer { notes.finished.removeAll(keepingCapacity: true) }
        return notes.finished
    }
}
