internal import EarshotLoop

/// Registrations with the loop for the descriptors of one instance of a C library.
///
/// A descriptor without interest stays registered, because a connection kept between two transfers is soon used again.
/// A library may close such a descriptor without notice, and the kernel may reuse its number. A change marked as new
/// therefore replaces the registration under that number.
final class DescriptorWatch {
    /// Receives the number and the readiness of a descriptor.
    typealias Listener = (Int32, EventLoop.Readiness) -> Void

    /// Creates the watch for one instance of a library.
    typealias Maker = (@escaping Listener) -> DescriptorWatch

    /// A registered descriptor. The library may have closed it since.
    private struct WatchedDescriptor {
        let registration: EventLoop.Registration
        let interest: EventLoop.Interest
        /// Whether the library has no interest in it at present.
        var isIdle = false
    }

    private let loop: EventLoop
    private let onReady: Listener
    private let onFailure: (SystemError) -> Void
    private var watchedDescriptors: [Int32: WatchedDescriptor] = [:]

    /// - Parameter failed: Called if the kernel has no memory to watch a descriptor, so that its transfers would hang.
    init(_ loop: EventLoop, ready: @escaping Listener, failed: @escaping (SystemError) -> Void) {
        self.loop = loop
        self.onReady = ready
        self.onFailure = failed
    }

    deinit {
        for watched in watchedDescriptors.values { loop.remove(watched.registration) }
    }

    /// Sets the interest in `descriptor`; none suspends the watch until the next call.
    ///
    /// - Parameter isNew: Whether the number may belong to another descriptor than at the last call.
    func setInterest(_ descriptor: Int32, reads: Bool, writes: Bool, isNew: Bool) {
        if isNew { forget(descriptor) }
        var interest: EventLoop.Interest = []
        if reads { interest.insert(.readable) }
        if writes { interest.insert(.writable) }
        if let index = watchedDescriptors.index(forKey: descriptor) {
            let isIdle = interest.isEmpty
            guard !isIdle, watchedDescriptors.values[index].interest != interest else {
                watchedDescriptors.values[index].isIdle = isIdle
                return
            }
        }
        if !interest.isEmpty { register(descriptor, interest: interest) }
    }

    private func register(_ descriptor: Int32, interest: EventLoop.Interest) {
        do throws(SystemError) {
            // `deinit` removes the registration, so this closure never outlives `self`.
            let registration = try loop.add(descriptor, interest) { [unowned self] readiness in
                // An event on an idle descriptor is the peer's hang-up. Epoll would report it again in each pass.
                if watchedDescriptors[descriptor]?.isIdle == true {
                    forget(descriptor)
                } else {
                    onReady(descriptor, readiness)
                }
            }
            watchedDescriptors[descriptor] = WatchedDescriptor(registration: registration, interest: interest)
        } catch {
            watchedDescriptors[descriptor] = nil
            onFailure(error)
        }
    }

    private func forget(_ descriptor: Int32) {
        if let watched = watchedDescriptors.removeValue(forKey: descriptor) { loop.remove(watched.registration) }
    }
}
