import EarshotCore
import EarshotLoop
import RESP

@testable import EarshotCluster

/// A session with a clock, and replies of a server that works.
struct SessionRig {
    var session: EngineSession
    var now = MonotonicTime(nanoseconds: 0)

    /// Address that a session without another place has. A valid literal.
    static let server = EngineAddress("127.0.0.1:6379")!

    init(_ place: EngineOptions.EngineLocation = .servers([SessionRig.server]), login: EngineOptions.Login? = nil) {
        var options = EngineOptions(
            location: place, cluster: "test", keys: ClusterKeys(secret: [1, 2, 3]), publicKey: "key",
            description: "host")
        options.login = login
        options.sentinelLogin = login
        session = EngineSession(options, seed: 1)
    }

    mutating func start() -> [EngineAction] {
        session.start(now: now)
        return session.takeActions()
    }

    mutating func open(_ link: EngineLink) -> [EngineAction] {
        session.linkOpened(link, now: now)
        return session.takeActions()
    }

    mutating func receive(_ reply: Reply, _ link: EngineLink = .scripts) -> [EngineAction] {
        session.receivedReply(reply, from: link, now: now)
        return session.takeActions()
    }

    mutating func close(_ link: EngineLink, _ fault: EngineFault = .connectionClosed) -> [EngineAction] {
        session.linkClosed(link, fault: fault, now: now)
        return session.takeActions()
    }

    mutating func submit(_ calls: EngineCall...) -> [EngineAction] {
        session.submit(calls, now: now)
        return session.takeActions()
    }

    /// Lets time pass until the session's next deadline.
    mutating func passTime() -> [EngineAction] {
        if let deadline = session.deadline { now = max(now, deadline) }
        session.timePassed(now: now)
        return session.takeActions()
    }

    /// Answers the commands of a heartbeat, as a server with `members` does.
    mutating func answer(_ commands: [EngineAction], members: Int = 1) {
        for command in commands {
            switch command {
            case .send(.scripts, let command) where command.words[0] == "INFO": _ = receive(Self.role)
            case .send(.scripts, _): _ = receive(Self.lease(members))
            case .send(.notifications, _):
                _ = receive(.array([.bulkString(Array("pong".utf8)), .bulkString([])]), .notifications)
            case .send, .open, .close, .report: break
            }
        }
    }

    static let role = Reply.bulkString(Array("# Replication\r\nrole:master\r\nconnected_slaves:0\r\n".utf8))

    /// Reply to a heartbeat: members, those whose lease has expired, and calls of and messages to this node.
    static func lease(_ members: Int, expired: Int = 0, calls: Int = 0, messages: Int = 0) -> Reply {
        .array([.integer(members), .integer(expired), .integer(calls), .integer(messages)])
    }

    static let memory = Reply.bulkString(Array("maxmemory:0\r\nmaxmemory_policy:noeviction\r\n".utf8))

    /// Brings a session that has opened both links to `joined`.
    mutating func greet() -> [EngineAction] {
        _ = open(.scripts)
        _ = open(.notifications)
        if session.options.login != nil {
            _ = receive(.status("OK"))
            _ = receive(.status("OK"), .notifications)
        }
        _ = receive(Self.role)
        _ = receive(Self.memory)
        for _ in EngineScript.allCases { _ = receive(.bulkString(Array("digest".utf8))) }
        return receive(.array([.bulkString(Array("subscribe".utf8)), .bulkString([]), .integer(1)]), .notifications)
    }

    mutating func join() -> [EngineAction] {
        _ = start()
        _ = greet()
        return receive(Self.lease(3))
    }
}

extension EngineAction {
    var isJoined: Bool { if case .report(.joined) = self { true } else { false } }
}
