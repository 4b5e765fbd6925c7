import Glibc

/// Two connected sockets.
struct SocketPair {
    let near: Int32
    let far: Int32

    init() {
        var pair: [Int32] = [-1, -1]
        precondition(unsafe socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &pair) == 0, "socketpair: \(errno)")
        (near, far) = (pair[0], pair[1])
    }

    /// Makes `near` readable.
    func send() {
        precondition(unsafe Glibc.send(far, "x", 1, 0) == 1, "send: \(errno)")
    }

    func close() {
        Glibc.close(near)
        Glibc.close(far)
    }
}
