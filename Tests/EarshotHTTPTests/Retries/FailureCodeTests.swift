import EarshotHTTP
import Testing

/// The table of failure codes.
@Suite struct FailureCodeTests {
    @Test func `the codes are those of the wire`() {
        let words = """
            http-status connect-refused connect-failed address-refused unknown-host dns-failed timeout connect-timeout \
            proxy-refused proxy-unavailable too-large too-compressed tls redirect-loop too-many-redirects redirect-refused truncated reset unsupported-scheme \
            malformed-url bad-header unsupported-method protocol-error encoding-error spool-full spool-failed \
            deadline digest-mismatch removed cancelled queue-full quota origin-cooling worker-lost \
            worker-failed poisonous not-cached not-stored expired stopping internal
            """
        #expect(FailureCode.allCases.map(\.rawValue) == words.split(separator: " ").map(String.init))
    }

    @Test func `the codes that another attempt may cure are these`() {
        let curable = FailureCode.allCases.filter { $0.isRetryable(status: nil) }
        #expect(
            Set(curable) == [
                .connectRefused, .connectFailed, .dnsFailed, .timeout, .connectTimeout, .proxyUnavailable, .truncated,
                .connectionReset,
                .workerLost, .spoolFailed,
            ])
    }

    @Test func `of the statuses six are worth another attempt`() {
        let curable = (-1...1000).filter { FailureCode.httpStatus.isRetryable(status: $0) }
        #expect(curable == [408, 429, 500, 502, 503, 504])
        #expect(!FailureCode.tls.isRetryable(status: 503))
    }

    @Test func `each code has a sentence of its own`() {
        let sentences = FailureCode.allCases.map(\.userMessage)
        #expect(Set(sentences).count == sentences.count)
        #expect(sentences.allSatisfy { $0.hasSuffix(".") })
    }
}
