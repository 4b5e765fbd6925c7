internal import EarshotLoop
internal import Glibc

/// Non-blocking read end of a program's output, for `ProgramRun`.
struct ProgramPipe: ~Copyable {
    /// Result of one read.
    enum Piece: Equatable {
        /// Number of bytes in the buffer.
        case bytes(Int)
        case nothingYet
        case end
    }

    let descriptor: Int32
    private let registration: EventLoop.Registration
    private let loop: EventLoop

    /// - Parameters:
    ///   - descriptor: Closed with this object, and also if the initializer throws.
    ///   - readable: Called in each pass in which the pipe is readable.
    init(_ descriptor: Int32, _ loop: EventLoop, readable: @escaping () -> Void) throws(SystemError) {
        self.descriptor = descriptor
        self.loop = loop
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
        do throws(SystemError) {
            registration = try loop.add(descriptor, .readable) { _ in readable() }
        } catch {
            close(descriptor)
            throw error
        }
    }

    deinit {
        loop.remove(registration)
        close(descriptor)
    }

    func read(into buffer: inout [UInt8]) -> Piece {
        while true {
            let count = unsafe Glibc.read(descriptor, &buffer, buffer.count)
            if count > 0 { return .bytes(count) }
            if count == 0 { return .end }
            switch errno {
            case EINTR: continue
            case EAGAIN: return .nothingYet
            default: return .end
            }
        }
    }
}
