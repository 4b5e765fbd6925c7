internal import EarshotLoop

/// Listening tcp socket of the `Gateway`. Connections wait in it while the gateway accepts none.
final class ConnectionListener {
    /// Connections that may wait for accept: the admissions of two seconds. Clients time out after five.
    private static let backlog: Int32 = 1_024
    /// Time for the socket of a gateway that was just killed to be closed.
    private static let bindTimeout = Duration.seconds(2)
    private static let bindRetryMilliseconds: Int32 = 20

    let descriptor: Int32
    /// Address with the port that the system has chosen.
    let addressText: String
    /// Called when connections wait.
    var onWaitingConnections: () -> Void = {}
    private let loop: EventLoop
    private var registration: EventLoop.Registration?

    /// Starts to listen. Connections wait until ``isAccepting`` is set.
    init(_ address: GatewayAddress, loop: EventLoop) throws(SystemError) {
        self.loop = loop
        let end = LoopTime.readClock().advanced(by: Self.bindTimeout)
        while true {
            do throws(SystemError) {
                let (descriptor, port) = try TCPSocket.listen(
                    address.address, port: address.port, backlog: Self.backlog)
                self.descriptor = descriptor
                addressText = GatewayAddress.addressText(address.address, port: port)
                return
            } catch {
                guard error.isAddressInUse, LoopTime.readClock() < end else { throw error }
                // Nothing runs on the loop before the gateway listens.
                LoopTime.sleep(milliseconds: Self.bindRetryMilliseconds)
            }
        }
    }

    deinit {
        isAccepting = false
        UnixSocket.close(descriptor)
    }

    /// Whether waiting connections are reported.
    var isAccepting = false {
        didSet {
            guard isAccepting != oldValue else { return }
            if let registration { loop.remove(registration) }
            registration = nil
            guard isAccepting else { return }
            // Fails only without memory; the next pause ends with another try.
            do throws(SystemError) {
                registration = try loop.add(descriptor, .readable) { [unowned self] _ in onWaitingConnections() }
            } catch {
                isAccepting = false
            }
        }
    }
}
