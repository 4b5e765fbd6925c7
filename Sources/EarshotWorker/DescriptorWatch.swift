internal import EarshotLoop

/// Keeps the loop's registrations in step with what one instance of a C library wants to hear of its descriptors.
///
/// A descriptor that nothing is wanted of stays registered: a connection that is kept between two transfers is soon
/// wanted again. A library may close it meanwhile without a word, and another get the same number: where that can be, a
/// change is a new registration, which ends whatever stood for the number.
final class DescriptorWatch {
    /// A descriptor that was to be watched, as far as is known.
    private struct Watched {
        let registration: EventLoop.Registration
        let interest: EventLoop.Interest
        /// Whether nothing is wanted of it at present.
        var isIdle = false
    }

    private let loop: EventLoop
    private let failed: (SystemError) -> Void
    private var watched: [Int32: Watched] = [:]

    /// - Parameter failed: told when the kernel has no memory to watch a descriptor: what waits for it waits in vain.
    init(_ loop: EventLoop, failed: @escaping (SystemError) -> Void) {
        self.loop = loop
        self.failed = failed
    }

    deinit {
        for watched in watched.values { loop.remove(watched.registration) }
    }

    /// Watches `descriptor` from now on for this; for nothing, until something is wanted of it again.
    ///
    /// - Parameters:
    ///   - isNew: whether it may be another than the one that had this number the last time.
    ///   - ready: does the same each time, if it is the same one.
    func set(
        _ descriptor: Int32, reads: Bool, writes: Bool, isNew: Bool,
        _ ready: @escaping (EventLoop.Readiness) -> Void
    ) {
        if isNew { forget(descriptor) }
        var interest: EventLoop.Interest = []
        if reads { interest.insert(.readable) }
        if writes { interest.insert(.writable) }
        guard !interest.isEmpty else {
            watched[descriptor]?.isIdle = true
            return
        }
        if watched[descriptor]?.interest == interest {
            watched[descriptor]?.isIdle = false
            return
        }
        do throws(SystemError) {
            // `deinit` ends what calls it.
            let registration = try loop.add(descriptor, interest) { [unowned self] readiness in
                // What comes while nobody waits is the other end's goodbye, and would be told of in each pass.
                if watched[descriptor]?.isIdle == true { forget(descriptor) } else { ready(readiness) }
            }
            watched[descriptor] = Watched(registration: registration, interest: interest)
        } catch {
            watched[descriptor] = nil
            failed(error)
        }
    }

    private func forget(_ descriptor: Int32) {
        if let watched = watched.removeValue(forKey: descriptor) { loop.remove(watched.registration) }
    }
}
