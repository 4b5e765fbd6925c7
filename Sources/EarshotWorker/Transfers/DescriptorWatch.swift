internal import EarshotLoop

/// Keeps the loop's registrations in step with what one instance of a C library wants to hear of its descriptors.
///
/// A descriptor that nothing is wanted of stays registered: a connection that is kept between two transfers is soon
/// wanted again. A library may close it meanwhile without a word, and another get the same number: where that can be, a
/// change is a new registration, which ends whatever stood for the number.
final class DescriptorWatch {
    /// Told that a descriptor is ready, by its number.
    typealias Listener = (Int32, EventLoop.Readiness) -> Void

    /// Makes a watch for one instance of a library.
    typealias Maker = (@escaping Listener) -> DescriptorWatch

    /// A descriptor that was to be watched, as far as is known.
    private struct Watched {
        let registration: EventLoop.Registration
        let interest: EventLoop.Interest
        /// Whether nothing is wanted of it at present.
        var isIdle = false
    }

    private let loop: EventLoop
    private let ready: Listener
    private let failed: (SystemError) -> Void
    private var watched: [Int32: Watched] = [:]

    /// - Parameter failed: told when the kernel has no memory to watch a descriptor: what waits for it waits in vain.
    init(_ loop: EventLoop, ready: @escaping Listener, failed: @escaping (SystemError) -> Void) {
        self.loop = loop
        self.ready = ready
        self.failed = failed
    }

    deinit {
        for watched in watched.values { loop.remove(watched.registration) }
    }

    /// Watches `descriptor` from now on for this; for nothing, until something is wanted of it again.
    ///
    /// - Parameter isNew: whether it may be another than the one that had this number the last time.
    func set(_ descriptor: Int32, reads: Bool, writes: Bool, isNew: Bool) {
        if isNew { forget(descriptor) }
        var interest: EventLoop.Interest = []
        if reads { interest.insert(.readable) }
        if writes { interest.insert(.writable) }
        if let place = watched.index(forKey: descriptor) {
            let isIdle = interest.isEmpty
            guard !isIdle, watched.values[place].interest != interest else {
                watched.values[place].isIdle = isIdle
                return
            }
        }
        if !interest.isEmpty { register(descriptor, interest) }
    }

    private func register(_ descriptor: Int32, _ interest: EventLoop.Interest) {
        do throws(SystemError) {
            // `deinit` ends what calls it.
            let registration = try loop.add(descriptor, interest) { [unowned self] readiness in
                // What comes while nobody waits is the other end's goodbye, and would be told of in each pass.
                if watched[descriptor]?.isIdle == true { forget(descriptor) } else { ready(descriptor, readiness) }
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
