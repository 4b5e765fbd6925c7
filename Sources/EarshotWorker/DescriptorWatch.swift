internal import EarshotLoop

/// Keeps the loop's registrations in step with what several C libraries want to hear of their descriptors.
///
/// A library may close a descriptor without a word, and another one get the same number: so it is known here whose a
/// number is, and only its owner can change or end what is registered for it.
final class DescriptorWatch {
    /// Who watches: each instance of a library has its own number.
    struct Owner: Hashable {
        let number: Int
    }

    private struct Entry {
        let owner: Owner
        let registration: EventLoop.Registration
    }

    /// The first thing the kernel refused to watch, for want of memory: the worker cannot go on without.
    private(set) var fault: SystemError?
    private let loop: EventLoop
    private var entries: [Int32: Entry] = [:]

    init(_ loop: EventLoop) {
        self.loop = loop
    }

    /// Watches `descriptor` for what `owner` wants of it from now on; for nothing ends it.
    func set(
        _ descriptor: Int32, reads: Bool, writes: Bool, for owner: Owner,
        _ ready: @escaping (EventLoop.Readiness) -> Void
    ) {
        var interest: EventLoop.Interest = []
        if reads { interest.insert(.readable) }
        if writes { interest.insert(.writable) }
        do throws(SystemError) {
            if let entry = entries[descriptor], entry.owner == owner {
                if interest.isEmpty {
                    entries[descriptor] = nil
                    loop.remove(entry.registration)
                } else {
                    try loop.change(entry.registration, to: interest)
                }
            } else if !interest.isEmpty {
                entries[descriptor] = Entry(owner: owner, registration: try loop.add(descriptor, interest, ready))
            }
        } catch {
            fault = fault ?? error
        }
    }
}
