public import EarshotHTTP
public import EarshotWire

/// A request of the core to its shell, nested by destination. The shell carries actions out in their order.
public enum Action: Equatable, Sendable {
    case client(Client)
    case worker(Worker)
    case spool(Spool)
    /// Only with `ShellFeatures.isCaching`.
    case cache(Cache)
    /// Only with `ShellFeatures.isStoringDurableRequests`.
    case durable(Durable)
    case supervisor(Supervisor)
    case log(Log)

    /// Messages to clients.
    public enum Client: Equatable, Sendable {
        /// A message without a body.
        case send(ClientID, BrokerMessage)
        /// The answer to a message with a number; `json` is frame 2 of an ANSWER.
        case replyToNumberedMessage(ClientID, BrokerMessage, json: [UInt8]?, to: UInt64)
        /// The answer to a query; `json` is frame 2.
        case answerQuery(ClientID, Query, json: [UInt8])
        /// A terminal with its inline body, if it has one. The shell reports a socket that does not take it by
        /// `BrokerCore.socketRefusedTerminal`.
        case deliverTerminal(ClientID, Terminal, BodyID?)
        /// A DATA with bytes of a spool file. The shell reports a socket that does not take it by
        /// `BrokerCore.socketRefusedPiece`, and a file without these bytes by `BrokerCore.bodyPieceUnreadable`.
        case sendBodyPiece(ClientID, BodyPiece)
        /// A goodbye, and the end of the connection, if it still stands.
        case close(ClientID, reason: String)
    }

    /// Messages to workers and ends of workers.
    public enum Worker: Equatable, Sendable {
        case send(WorkerID, PoolMessage)
        /// A JOB with the body of its request.
        case sendJob(WorkerID, Job, BodyID)
        /// A JOB that resumes a part of the folder of parts, if that has one. The shell moves it to the name of the
        /// attempt's file, and reports it by `BrokerCore.storedPartFound` before it sends the JOB with `resume`.
        case resumeJob(WorkerID, Job, PartKeys)
        /// Kills the process of a silent worker. The shell reports its death by `BrokerCore.workerLost`.
        case kill(WorkerID)
        /// Closes the connection, once the last message has had time to leave.
        case close(WorkerID)
    }

    /// Bodies in the shell's memory, and files of the spool.
    public enum Spool: Equatable, Sendable {
        /// Moves a body that waits too long from memory into the spool under this name. The shell keeps a body that it
        /// cannot write and reports it by `BrokerCore.bodySpillFailed`.
        case spillBody(BodyID, file: String)
        /// Writes a body, in memory or spilled, into the spool under the name of its content. If that fails, the shell
        /// sends each terminal that names the file as `FAILED spool-full`.
        case writeBody(BodyID, file: String)
        case releaseBody(BodyID)
        /// Removes a file that nothing needs.
        case releaseFile(String)
        /// Renames a kept part to the name under which the worker of the following JOB continues it.
        case assignPart(String, as: String)
        case removePart(String)
        /// Stores the description of an unfinished body, for a broker after this one. A later action replaces it.
        case recordPart(String, PartKeys, PartDescription)
        /// Moves the part of an ended flight, which was recorded, to the folder of parts.
        case storePart(String)
        /// Removes all other files of earlier brokers' attempts: those that no worker holds, by
        /// `BrokerCore.isAttemptRunning`.
        case removeStaleAttemptFiles
    }

    /// Requests to the cache.
    public enum Cache: Equatable, Sendable {
        /// Looks a request up. The shell reports the variants by `BrokerCore.cacheLookupCompleted`.
        case lookUpVariants(FlightName, CacheKey, HTTPRequest)
        /// Reads the body of a stored answer, or a range of it. The shell reports it by `BrokerCore.cachedBodyRead`.
        case readBody(FlightName, CacheEntryID, range: Range<Int>?)
        /// Stores an answer in place of one for the same requests. Its body is in memory or a spool file. It counts in
        /// the owner's share of the cache; nil is the administrator.
        case storeResponse(CacheKey, CacheVariant, BodyID?, file: String?, owner: PrincipalName?)
        /// Updates the fields of an answer that a revalidation found unchanged.
        case updateStoredFields(CacheKey, CacheEntryID, StoredResponse)
        case discardEntry(CacheKey, CacheEntryID)
        /// Marks all answers for these URLs, in all scopes, for validation before use.
        case invalidateURLs([FetchURL])
        /// Sets the maximum size.
        case setMaximumSize(bytes: Int)
    }

    /// Requests to the table of durable requests.
    public enum Durable: Equatable, Sendable {
        /// Reads the next rows after one, of one principal or of all. The shell reports them by
        /// `BrokerCore.durableRowsRead`.
        case readRows(after: DurableID?, of: PrincipalName?)
        /// Stores and flushes a request; `head` is its FETCH. The principal is nil for the administrator. The shell
        /// reports it by `BrokerCore.durableRequestStored` or `BrokerCore.durableRequestStoreFailed`.
        case storeRequest(DurableID, PrincipalName?, acceptedAt: Int64, head: [UInt8])
        /// Stores and flushes a result. The shell reports it by `BrokerCore.durableOutcomeWritten`.
        case storeResult(DurableID, DurableResult)
        /// Reads a result. The shell reports it by `BrokerCore.durableResultRead`.
        case readResult(DurableID)
        /// Deletes the result of a request, and flushes that. The shell reports the request by
        /// `BrokerCore.durableRequestReopened`.
        case reopenRequest(DurableID, acceptedAt: Int64)
        /// Deletes a request and its result.
        case deleteRequest(DurableID)
        /// Sets the maximum size.
        case setMaximumSize(bytes: Int)
    }

    /// Lines of the log.
    public enum Log: Equatable, Sendable {
        /// An attempt is assigned; its JOB follows. Only with `ShellFeatures.isLoggingAttempts`.
        case attemptAssigned(AttemptAssignment)
    }

    /// Messages to the supervisor.
    public enum Supervisor: Equatable, Sendable {
        /// Kills a worker of an earlier broker, which has not sent READY. The shell reports its end by
        /// `BrokerCore.formerProcessEnded`.
        case killWorker(Int32)
        /// A client has changed a setting. The supervisor keeps it for the next broker.
        case settingChanged(SettingChange)
        /// A request has ended. Only with `ShellFeatures.isReportingRequestEnds`.
        case requestEnded(EndedRequest)
    }
}

/// Connection of a client. The shell numbers connections and never reuses a number.
public struct ClientID: Hashable, Sendable {
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}

/// Connection of a worker. The shell numbers connections and never reuses a number.
public struct WorkerID: Hashable, Sendable {
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}

/// Inline body that the shell holds for the core.
public struct BodyID: Hashable, Sendable {
    public var rawValue: UInt64

    public init(rawValue: UInt64) {
        self.rawValue = rawValue
    }
}
