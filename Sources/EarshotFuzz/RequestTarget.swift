internal import EarshotLoop
internal import EarshotWire

@testable internal import EarshotWeb

/// Fuzz target: requests of HTTP clients. The head and a chunked body must not depend on how the input is split, and the broker
/// reads each FETCH that the proxy, the prefix and the API make of a request.
///
/// The first byte selects the number of bytes per step; the second, whether the input is a body. Input after a head is the body
/// of its request.
enum RequestTarget {
    static func run(_ bytes: [UInt8]) {
        guard bytes.count > 2 else { return }
        let input = Array(bytes.dropFirst(2))
        let step = Int(bytes[0] % 32) + 1
        if bytes[1] % 2 == 0 { readHead(input, step) } else { readBody(input, step) }
    }

    private static func readHead(_ input: [UInt8], _ step: Int) {
        let whole = RequestHead.parse(input)
        var (read, searched) = ([UInt8](), 0)
        var reading = RequestHead.Reading.incomplete
        while reading == .incomplete, read.count < input.count {
            read += input[read.count..<min(read.count + step, input.count)]
            reading = RequestHead.parse(read, searched: searched)
            searched = read.count
        }
        // A head that is split at the limit may be rejected for its size before a later fault is seen.
        guard read.count < 16_384 else { return }
        precondition(reading == whole, "\(reading), and \(whole)")
        if case .complete(let head, let length) = whole {
            precondition(input[..<length].suffix(4).elementsEqual([13, 10, 13, 10]))
            carryOut(head, Array(input[length...]))
        }
    }

    /// Carries out a request without a broker.
    private static func carryOut(_ head: RequestHead, _ body: [UInt8]) {
        guard let handler = HandlerID("a"), let id = RequestID("1") else { return }
        let proxy = ProxyRequest(
            pseudonym: "earshot-x", ports: [5_768], rewrittenHosts: ["b"], maximumWaitMilliseconds: 1)
        if case .fetchRequest(let fetch) = proxy.read(head, body: body, handler: handler, id: id) { check(fetch) }
        guard head.target.hasPrefix("/v1"), let loop = try? EventLoop(), let ends = try? UnixSocket.makePair() else {
            return
        }
        defer { UnixSocket.close(ends.1) }
        let rules = WebPeer.Rules(
            rejectionResponse: { WebResponse($0, text: "") }, onRequest: { _, _, _ in }, onClose: { _ in })
        guard let peer = try? WebPeer(descriptor: ends.0, rules: rules, loop: loop) else {
            return UnixSocket.close(ends.0)
        }
        defer { peer.close() }
        let api = API(origins: [], ownUser: 1, via: "1.1 earshot-x", loop: loop) { _, _, _ in nil }
        for user in 1...2 as ClosedRange<UInt32> where api.refusal(of: head, isProved: false) == nil {
            if case .responseToFetch(let fetch)? = api.answer(
                peer, head: head, body: body, user: user, handler: handler, id: id)
            {
                check(fetch)
            }
        }
    }

    private static func check(_ fetch: Fetch) {
        var fetch = fetch
        let again = try? ClientMessage(head: ClientMessage.fetch(fetch).encoded())
        fetch.body = nil
        precondition(again == .fetch(fetch), "\(fetch) is read again as \(String(describing: again))")
    }

    private static func readBody(_ input: [UInt8], _ step: Int) {
        var (all, rest) = (input, [UInt8]())
        var (one, other) = (ChunkedBody(maximumBytes: 1_000), ChunkedBody(maximumBytes: 1_000))
        let whole = one.read(&all)
        var reading = ChunkedBody.Reading.incomplete
        var taken = 0
        while reading == .incomplete, taken < input.count {
            rest += input[taken..<min(taken + step, input.count)]
            taken = min(taken + step, input.count)
            reading = other.read(&rest)
        }
        precondition(reading == whole, "\(reading), and \(whole)")
        precondition(one.decodedBytes.count <= 1_000 && one.decodedBytes == other.decodedBytes, "other data")
        if whole == .complete { precondition(all == rest + input[taken...], "another end of the body") }
    }
}
