internal import CLinux
internal import Glibc

/// Service manager that started this process and expects status notifications: sd_notify(3), datagrams to the socket in
/// `NOTIFY_SOCKET`.
///
/// Notifying never blocks. Notifications that the manager does not accept are queued and retried; a newer value of a
/// variable replaces an older one.
public final class ServiceManager {
    /// Watchdog timeout of the manager; nil if its watchdog is off.
    public let watchdogTime: Duration?

    /// Delay before a retry. The manager's queue is full only while it is stopped.
    private static let retryDelay = Duration.milliseconds(100)

    /// Socket address; starts with a zero byte for an abstract one.
    private let name: [CChar]
    private let descriptor: Int32
    /// Notifications not yet sent, in order.
    private var unsentNotifications: [(variable: String, value: String)] = []
    private var isRetryScheduled = false

    private init(name: [CChar], descriptor: Int32, watchdogTime: Duration?) {
        self.name = name
        self.descriptor = descriptor
        self.watchdogTime = watchdogTime
    }

    deinit { close(descriptor) }

    /// Reads the manager's settings and removes them from the environment, so that no child notifies in this process's
    /// name. Must be called before other threads start.
    ///
    /// - Returns: nil if no manager expects notifications.
    /// - Throws: `SystemError` if the socket's name is invalid or no descriptor is available.
    public static func takeFromEnvironment() throws(SystemError) -> ServiceManager? {
        let socket = takeEnvironmentVariable("NOTIFY_SOCKET")
        let microseconds = takeEnvironmentVariable("WATCHDOG_USEC").flatMap { Int64($0) }
        let watchdogPID = takeEnvironmentVariable("WATCHDOG_PID").flatMap { Int32($0) }
        guard let socket else { return nil }
        var name = socket.utf8.map { CChar(bitPattern: $0) }
        guard socket.hasPrefix("/") || socket.hasPrefix("@") else {
            throw SystemError("NOTIFY_SOCKET", number: EAFNOSUPPORT)
        }
        // The zero byte that terminates a path must fit as well: unix(7).
        guard (2...107).contains(name.count) else { throw SystemError("NOTIFY_SOCKET", number: ENAMETOOLONG) }
        if socket.hasPrefix("@") { name[0] = 0 }
        let descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        let isWatched = watchdogPID == nil || watchdogPID == getpid()
        return ServiceManager(
            name: name, descriptor: descriptor,
            watchdogTime: microseconds.flatMap { isWatched && $0 > 0 ? .microseconds($0) : nil })
    }

    /// Sends variables such as `READY` with their values, in one datagram together with queued ones.
    ///
    /// - Parameter loop: Event loop that schedules retries.
    public func notify(_ variables: [(variable: String, value: String)], loop: EventLoop) {
        for (variable, value) in variables {
            unsentNotifications.removeAll { $0.variable == variable }
            unsentNotifications.append((variable, value.replacing("\n", with: " ")))
        }
        sendUnsent(retryingOn: loop)
    }

    private func sendUnsent(retryingOn loop: EventLoop) {
        guard !unsentNotifications.isEmpty else { return }
        let text = Array(unsentNotifications.map { "\($0.variable)=\($0.value)\n" }.joined().utf8)
        let sent = unsafe linux_send_to_unix(descriptor, name, name.count, text, text.count)
        // Errors other than a full queue are permanent: notifications are dropped.
        guard sent < 0, errno == EAGAIN || errno == EINTR || errno == ENOBUFS else {
            unsentNotifications = []
            return
        }
        guard !isRetryScheduled else { return }
        isRetryScheduled = true
        loop.setTimer(after: Self.retryDelay) { [weak self, unowned loop] in
            self?.isRetryScheduled = false
            self?.sendUnsent(retryingOn: loop)
        }
    }

    private static func takeEnvironmentVariable(_ variable: String) -> String? {
        defer { unsafe unsetenv(variable) }
        let value = unsafe getenv(variable).map { unsafe String(cString: $0) }
        return value.flatMap { $0.isEmpty ? nil : $0 }
    }
}
