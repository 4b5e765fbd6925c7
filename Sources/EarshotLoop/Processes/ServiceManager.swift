internal import CLinux
internal import Glibc

/// The service manager that started this process and wants to be told how it is: sd_notify(3), by datagrams to the
/// socket that `NOTIFY_SOCKET` names.
///
/// Telling never waits: what the manager does not take yet is kept here and tried again, of two values of one variable
/// the later one.
public final class ServiceManager {
    /// How long it waits for a sign of life before it ends this process; nil if it does not.
    public let watchdogTime: Duration?

    /// How long to wait when it takes nothing: it has a queue, which is full only while it is stopped.
    private static let retryDelay = Duration.milliseconds(100)

    /// Of the socket; a first byte of zero for an abstract one.
    private let name: [CChar]
    private let descriptor: Int32
    /// What it is still to hear, in order.
    private var owed: [(variable: String, value: String)] = []
    private var isWaiting = false

    private init(name: [CChar], descriptor: Int32, watchdogTime: Duration?) {
        self.name = name
        self.descriptor = descriptor
        self.watchdogTime = watchdogTime
    }

    deinit { close(descriptor) }

    /// Takes what the environment says about it out of the environment, so that no child of this process speaks for it.
    /// To be called before there are other threads.
    ///
    /// - Returns: nil if nobody is to be told.
    /// - Throws: `SystemError` when the socket's name is none, or there is no descriptor.
    public static func take() throws(SystemError) -> ServiceManager? {
        let socket = taken("NOTIFY_SOCKET")
        let microseconds = taken("WATCHDOG_USEC").flatMap { Int64($0) }
        let watched = taken("WATCHDOG_PID").flatMap { Int32($0) }
        guard let socket else { return nil }
        var name = socket.utf8.map { CChar(bitPattern: $0) }
        guard socket.hasPrefix("/") || socket.hasPrefix("@") else {
            throw SystemError("NOTIFY_SOCKET", number: EAFNOSUPPORT)
        }
        // The zero byte that ends a path has to fit as well: unix(7).
        guard (2...107).contains(name.count) else { throw SystemError("NOTIFY_SOCKET", number: ENAMETOOLONG) }
        if socket.hasPrefix("@") { name[0] = 0 }
        let descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        let isWatched = watched == nil || watched == getpid()
        return ServiceManager(
            name: name, descriptor: descriptor,
            watchdogTime: microseconds.flatMap { isWatched && $0 > 0 ? .microseconds($0) : nil })
    }

    /// Tells variables such as `READY` and their values, in one datagram with what is owed.
    ///
    /// - Parameter loop: tries again what is not taken.
    public func tell(_ news: [(variable: String, value: String)], loop: EventLoop) {
        for (variable, value) in news {
            owed.removeAll { $0.variable == variable }
            owed.append((variable, value.replacing("\n", with: " ")))
        }
        send(loop)
    }

    private func send(_ loop: EventLoop) {
        guard !owed.isEmpty else { return }
        let text = Array(owed.map { "\($0.variable)=\($0.value)\n" }.joined().utf8)
        let sent = unsafe linux_send_to_unix(descriptor, name, name.count, text, text.count)
        // Anything but a full queue lasts: there is nobody to tell, and nothing to be done.
        guard sent < 0, errno == EAGAIN || errno == EINTR || errno == ENOBUFS else {
            owed = []
            return
        }
        guard !isWaiting else { return }
        isWaiting = true
        loop.setTimer(after: Self.retryDelay) { [weak self, unowned loop] in
            self?.isWaiting = false
            self?.send(loop)
        }
    }

    private static func taken(_ variable: String) -> String? {
        defer { unsafe unsetenv(variable) }
        let value = unsafe getenv(variable).map { unsafe String(cString: $0) }
        return value.flatMap { $0.isEmpty ? nil : $0 }
    }
}
