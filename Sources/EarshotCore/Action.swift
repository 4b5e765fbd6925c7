public import EarshotHTTP
public import EarshotWire

/// A connection of a client, numbered by the shell, never used again.
public struct ClientID: Hashable, Sendable {
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}

/// A connection of a worker, numbered by the shell, never used again.
public struct WorkerID: Hashable, Sendable {
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}

/// An inline body the shell holds for the core.
public struct BodyID: Hashable, Sendable {
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}

/// A terminal that the shell keeps in a file for the core. Used again once it is forgotten.
public struct WaitingID: Hashable, Sendable {
    /// Small: from 0 on, as many as there are at once.
    public var rawValue: Int32

    public init(rawValue: Int32) {
        self.rawValue = rawValue
    }
}

/// What the core asks its shell to do, in this order.
public enum Action: Equatable, Sendable {
    /// Say something that has no body.
    case send(ClientID, BrokerMessage)
    /// Answer a query; `json` is frame 2.
    case answer(ClientID, Query, json: [UInt8])
    /// Send a terminal, with its inline body if it has one. A socket that will not take it now is told by
    /// `BrokerCore.deliveryRefused`.
    case deliver(ClientID, Terminal, BodyID?)
    /// Say the last word and close the connection, if it still stands.
    case close(ClientID, reason: String)
    case sendWorker(WorkerID, PoolMessage)
    /// A JOB with the body of its request.
    case sendJob(WorkerID, Job, BodyID)
    /// The worker is silent: end its process; its death is told by `BrokerCore.workerLost`.
    case killWorker(WorkerID)
    /// Forget the connection, once the last word has had time to leave.
    case closeWorker(WorkerID)
    /// Write this body into the spool under this name and forget it: it waits too long for memory. If that cannot be,
    /// keep it and tell `BrokerCore.spillFailed`.
    case spill(BodyID, file: String)
    /// Write this terminal, whose number is still to be told, with its body into a file: it waits too long for memory.
    /// If that cannot be, keep it and tell `BrokerCore.waitingFailed`.
    case keepWaiting(WaitingID, Terminal, BodyID?)
    /// Send it, as `deliver` does. If it cannot be read, tell `BrokerCore.waitingLost`.
    case deliverWaiting(ClientID, sequence: UInt64, WaitingID)
    /// Nobody needs it any more.
    case forgetWaiting(WaitingID)
    /// Nobody needs this body any more.
    case releaseBody(BodyID)
    /// Nobody needs this spool file any more.
    case releaseFile(String)
    /// Give this file, which was kept, the name under which the worker whose JOB follows goes on with it.
    case lendPart(String, as: String)
    /// Nobody goes on with this file.
    case removePart(String)
    /// Whatever else earlier brokers' attempts left in the spool is nobody's: all files of attempts that no worker
    /// holds, as `BrokerCore.holds` says.
    case sweepSpool
    /// Tell what the cache has for this request, by `BrokerCore.cacheAnswered`.
    case lookUp(FlightName, CacheKey, HTTPRequest)
    /// Bring the body of a kept answer, by `BrokerCore.cacheRead`.
    case readCached(FlightName, CacheEntryID)
    /// Keep this answer, in the place of one for the same requests. Its body is the one held or the spool file.
    case store(CacheKey, CacheVariant, BodyID?, file: String?)
    /// A kept answer was found unchanged: what is known of it is this now.
    case refresh(CacheKey, CacheEntryID, StoredResponse)
    /// Keep an answer no longer.
    case discard(CacheKey, CacheEntryID)
    /// Have all answers for these URLs validated before they are used, in all scopes.
    case invalidate([FetchURL])
    /// Keep so many bytes at most.
    case limitCache(bytes: Int)
    /// Write a durable request, whose FETCH this is, to the disk, for good; then tell `BrokerCore.durableStored`, or
    /// `durableRefused`.
    case storeDurable(DurableID, acceptedAt: Int64, head: [UInt8])
    /// Write how it ended, for good; then tell `BrokerCore.durableRecorded`.
    case storeResult(DurableID, DurableResult)
    /// Tell what was written, by `BrokerCore.durableRead`.
    case readResult(DurableID)
    /// Keep nothing of it any longer.
    case forgetDurable(DurableID)
    /// Keep so many bytes of them at most.
    case limitDurable(bytes: Int)
    /// Let the supervisor know what a client has set: it keeps to it, and gives it to the next broker.
    case settingChanged(SettingChange)
}
