internal import EarshotLoop

/// Keeps the loop's registrations in step with what one instance of a C library wants to hear of its descriptors.
///
/// A library may close a descriptor without a word, and another one get the same number. So a change is always a new
/// registration, which ends whatever stood for the number, and ending one that was replaced so does nothing.
final class DescriptorWatch {
    private let loop: EventLoop
    private let failed: (SystemError) -> Void
    private var registrations: [Int32: EventLoop.Registration] = [:]

    /// - Parameter failed: told when the kernel has no memory to watch a descriptor: what waits for it waits in vain.
    init(_ loop: EventLoop, failed: @escaping (SystemError) -> Void) {
        self.loop = loop
        self.failed = failed
    }

    /// Watches `descriptor` from now on for this; for nothing ends it.
    func set(_ descriptor: Int32, reads: Bool, writes: Bool, _ ready: @escaping (EventLoop.Readiness) -> Void) {
        var interest: EventLoop.Interest = []
        if reads { interest.insert(.readable) }
        if writes { interest.insert(.writable) }
        guard !interest.isEmpty else {
            if let registration = registrations.removeValue(forKey: descriptor) { loop.remove(registration) }
            return
        }
        do throws(SystemError) {
            registrations[descriptor] = try loop.add(descriptor, interest, ready)
        } catch {
            failed(error)
        }
    }
}
