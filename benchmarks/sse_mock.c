// A server that streams at a known rate, for measuring clients: the API of SGLang (/generate, cumulative text and ids) and of
// OpenAI (/v1/chat/completions), as one thread over epoll. Its figures are true: /metrics counts every token.
//
//   cc -O2 -o sse_mock sse_mock.c
//   sse_mock TICK_US TOKENS_PER_CHUNK LIFETIME_S [PORT]
//
// TICK_US: time between two chunks of a stream; 0: as fast as the client reads. All streams that are due are written in one
// go, as an engine's step does. Prints its port on a line, and on exit what it sent, how late it was and its own CPU time.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_TOKENS = 32768, LISTENER = 0 };
enum api { NONE, GENERATE, CHAT };

struct stream {
  int fd, next_active, is_active, writable_wanted;
  enum api api;
  int total, sent, prompt;
  int usage, continuous; // what stream_options asked for
  uint64_t due_us;
  char *in, *out;
  size_t in_length, in_room, out_length, out_offset, out_room;
};

static int poller, active = -1; // head of the list of streams that are sending
static struct stream **streams;
static int rooms;
static long tick_us;
static int tokens_per_chunk;
static char words[MAX_TOKENS * 3 + 1], ids[MAX_TOKENS * 4 + 1];
static uint64_t tokens, requests, prompts, chunks, late, blocked;
static double latest_ms;
static volatile sig_atomic_t ended;

static void end(int number) { ended = number; }

static uint64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

static void put(struct stream *s, const char *bytes, size_t length) {
  if (s->out_offset == s->out_length) s->out_offset = s->out_length = 0;
  if (s->out_length + length > s->out_room) {
    s->out_room = (s->out_length + length) * 2;
    s->out = realloc(s->out, s->out_room);
  }
  memcpy(s->out + s->out_length, bytes, length);
  s->out_length += length;
}

static void putf(struct stream *s, const char *format, ...) {
  char text[4096];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  put(s, text, length);
}

static void want(struct stream *s, int writable) {
  if (s->writable_wanted == writable) return;
  s->writable_wanted = writable;
  struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = s};
  epoll_ctl(poller, EPOLL_CTL_MOD, s->fd, &event);
}

// 1: all out, 0: the socket is full, -1: the client is gone.
static int flush_out(struct stream *s) {
  while (s->out_offset < s->out_length) {
    ssize_t n = send(s->fd, s->out + s->out_offset, s->out_length - s->out_offset, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      s->out_offset += n;
    } else if (errno == EAGAIN) {
      blocked++;
      want(s, 1);
      return 0;
    } else if (errno != EINTR) {
      return -1;
    }
  }
  want(s, 0);
  return 1;
}

static void drop(struct stream *s) {
  streams[s->fd] = NULL;
  close(s->fd);
  free(s->in);
  free(s->out);
  free(s);
}

static void activate(struct stream *s) {
  s->is_active = 1;
  s->next_active = active;
  active = s->fd;
}

static void emit(struct stream *s) {
  int count = s->total - s->sent < tokens_per_chunk ? s->total - s->sent : tokens_per_chunk;
  char head[64], tail[1024];
  s->sent += count;
  tokens += count;
  chunks++;
  int last = s->sent == s->total;
  if (s->api == GENERATE) {
    // The fields and their lengths are those of SGLang 0.5.23.
    int h = snprintf(head, sizeof head, "data: {\"text\":\"");
    int t = snprintf(
        tail, sizeof tail,
        "],\"meta_info\":{\"id\":\"6683808ea64e432985409d39b598eb5e\",\"finish_reason\":%s,\"prompt_tokens\":%d,"
        "\"weight_version\":\"default\",\"num_retractions\":0,\"storage_prefetch_wait\":0.0,\"storage_staging_wait\":0.0,"
        "\"forward_entry_time\":1795960112.782245,\"prefill_finished_time\":1795960112.7945752,"
        "\"queue_time\":0.00034102800009350176,\"reasoning_tokens\":0,\"completion_tokens\":%d,\"cached_tokens\":0,"
        "\"cached_tokens_details\":{\"device\":0,\"host\":0},\"dp_rank\":null%s}}\n\n",
        last ? "{\"type\":\"length\",\"length\":0}" : "null", s->prompt, s->sent, last ? ",\"e2e_latency\":1.5" : "");
    int w = s->sent * 3, i = s->sent * 4 - 1;
    putf(s, "%x\r\n", h + w + 16 + i + t);
    put(s, head, h);
    put(s, words, w);
    put(s, "\",\"output_ids\":[", 16);
    put(s, ids, i);
    put(s, tail, t);
    put(s, "\r\n", 2);
  } else {
    char usage[160] = "";
    if (s->continuous)
      snprintf(usage, sizeof usage, ",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d,\"prompt_tokens_details\":null,\"reasoning_tokens\":0}",
               s->prompt, s->prompt + s->sent, s->sent);
    int t = snprintf(
        tail, sizeof tail,
        "data: {\"id\":\"cb818d3610304c1bbfc6342e8b6d0889\",\"object\":\"chat.completion.chunk\",\"created\":1795960114,"
        "\"model\":\"mock\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":null,\"content\":\"%.*s\"},"
        "\"logprobs\":null,\"finish_reason\":%s,\"matched_stop\":null}]%s}\n\n",
        count * 3 < 300 ? count * 3 : 300, words, last ? "\"length\"" : "null", usage);
    putf(s, "%x\r\n", t);
    put(s, tail, t);
    put(s, "\r\n", 2);
    if (last && s->usage) {
      t = snprintf(tail, sizeof tail,
                   "data: {\"id\":\"cb818d36\",\"object\":\"chat.completion.chunk\",\"created\":1795960114,\"model\":\"mock\",\"choices\":[],"
                   "\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d,\"prompt_tokens_details\":null}}\n\n",
                   s->prompt, s->prompt + s->total, s->total);
      putf(s, "%x\r\n", t);
      put(s, tail, t);
      put(s, "\r\n", 2);
    }
  }
  if (last) {
    putf(s, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
    s->is_active = 0;
  }
}

static int number(const char *body, const char *key, int otherwise) {
  const char *found = strstr(body, key);
  if (!found) return otherwise;
  found += strlen(key);
  found += strspn(found, "\": ");
  return *found >= '0' && *found <= '9' ? atoi(found) : otherwise;
}

static int flag(const char *body, const char *key) {
  const char *found = strstr(body, key);
  if (!found) return 0;
  found += strlen(key);
  return !strncmp(found + strspn(found, "\": "), "true", 4);
}

static void answer(struct stream *s, const char *type, const char *body) {
  putf(s, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n", type, strlen(body));
  put(s, body, strlen(body));
}

static void request(struct stream *s, const char *head, const char *body) {
  char text[1024];
  enum api api = !strncmp(head, "POST /generate", 14) ? GENERATE : strstr(head, "/v1/chat/completions") ? CHAT : NONE;
  if (api == NONE) {
    if (strstr(head, "/v1/models")) {
      answer(s, "application/json", "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"max_model_len\":32768}]}");
    } else if (strstr(head, "server_info")) {
      answer(s, "application/json", "{\"model_path\":\"mock\",\"version\":\"0.5.23\",\"internal_states\":[{}]}");
    } else if (strstr(head, "model_info")) {
      answer(s, "application/json", "{\"model_path\":\"mock\",\"tokenizer_path\":\"mock\",\"is_generation\":true}");
    } else if (strstr(head, " /metrics")) {
      snprintf(text, sizeof text,
               "sglang:num_running_reqs{tp_rank=\"0\"} 0.0\nsglang:num_queue_reqs{tp_rank=\"0\"} 0.0\n"
               "sglang:generation_tokens_total{model_name=\"mock\"} %llu.0\nsglang:prompt_tokens_total{model_name=\"mock\"} %llu.0\n"
               "sglang:num_requests_total{model_name=\"mock\"} %llu.0\n",
               (unsigned long long)tokens, (unsigned long long)prompts, (unsigned long long)requests);
      answer(s, "text/plain", text);
    } else {
      answer(s, "text/plain", "ok\n");
    }
    return;
  }
  s->api = api;
  s->total = number(body, "\"max_new_tokens\"", 0);
  if (!s->total) s->total = number(body, "\"max_tokens\"", 0);
  if (!s->total) s->total = number(body, "\"max_completion_tokens\"", 128);
  if (s->total > MAX_TOKENS) s->total = MAX_TOKENS;
  s->sent = 0;
  s->prompt = 16;
  s->usage = flag(body, "\"include_usage\"");
  s->continuous = flag(body, "\"continuous_usage_stats\"");
  requests++;
  prompts += s->prompt;
  putf(s, "HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n");
  s->due_us = now_us() + tick_us;
  activate(s);
}

static int read_in(struct stream *s) {
  for (;;) {
    if (s->in_room < s->in_length + 65537) s->in = realloc(s->in, s->in_room = s->in_length + 131072);
    ssize_t n = recv(s->fd, s->in + s->in_length, 65536, MSG_DONTWAIT);
    if (n > 0) {
      s->in_length += n;
      continue;
    }
    if (n < 0 && errno == EAGAIN) break;
    return -1;
  }
  s->in[s->in_length] = 0;
  char *gap;
  while (!s->is_active && (gap = memmem(s->in, s->in_length, "\r\n\r\n", 4))) {
    size_t head = gap - s->in + 4;
    *gap = 0;
    char *length = strcasestr(s->in, "\r\ncontent-length:");
    size_t whole = head + (length ? strtoul(length + 17, NULL, 10) : 0);
    if (s->in_length < whole) {
      *gap = '\r';
      break;
    }
    char kept = s->in[whole];
    s->in[whole] = 0;
    request(s, s->in, s->in + head);
    s->in[whole] = kept;
    s->in_length -= whole;
    memmove(s->in, s->in + whole, s->in_length + 1);
  }
  return s->out_length > s->out_offset ? flush_out(s) : 1;
}

int main(int count, char **values) {
  if (count < 4) return fprintf(stderr, "sse_mock TICK_US TOKENS_PER_CHUNK LIFETIME_S [PORT]\n"), 2;
  tick_us = atol(values[1]);
  tokens_per_chunk = atoi(values[2]);
  uint64_t until = now_us() + atol(values[3]) * 1000000ull;
  for (int i = 0; i < MAX_TOKENS; i++) memcpy(words + i * 3, " hi", 3), memcpy(ids + i * 4, "946,", 4);
  signal(SIGTERM, end);
  signal(SIGINT, end);
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max < 65536 ? limit.rlim_max : 65536;
  setrlimit(RLIMIT_NOFILE, &limit);
  rooms = limit.rlim_cur;
  streams = calloc(rooms, sizeof *streams);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(count > 4 ? atoi(values[4]) : 0), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  if (bind(listener, (void *)&address, size) || listen(listener, 4096)) return perror("sse_mock"), 1;
  getsockname(listener, (void *)&address, &size);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  poller = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[1024];
  epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
  while (!ended && now_us() < until) {
    int flooding = !tick_us && active >= 0;
    int n = epoll_wait(poller, events, 1024, active < 0 ? 50 : flooding ? 0 : 1);
    for (int i = 0; i < n; i++) {
      struct stream *s = events[i].data.ptr;
      if (!s) {
        int fd;
        while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
          if (fd >= rooms) {
            close(fd);
            continue;
          }
          setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
          s = streams[fd] = calloc(1, sizeof *s);
          s->fd = fd;
          event.events = EPOLLIN;
          event.data.ptr = s;
          epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
        }
        continue;
      }
      int state = 1;
      if (events[i].events & EPOLLOUT) state = flush_out(s);
      if (state >= 0 && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) state = read_in(s);
      if (state < 0) {
        // Out of the list of active ones first: `drop` frees it.
        for (int *link = &active; *link >= 0; link = &streams[*link]->next_active)
          if (*link == s->fd) {
            *link = s->next_active;
            break;
          }
        drop(s);
      }
    }
    uint64_t now = now_us();
    for (int *link = &active; *link >= 0;) {
      struct stream *s = streams[*link];
      int gone = 0;
      if (!tick_us) {
        if (s->out_offset == s->out_length) {
          for (int i = 0; i < 4 && s->is_active; i++) emit(s);
          gone = flush_out(s) < 0;
        }
      } else if (now >= s->due_us) {
        double lateness = (now - s->due_us) / 1000.0;
        if (lateness > latest_ms) latest_ms = lateness;
        late += lateness * 1000 > tick_us;
        s->due_us += tick_us;
        emit(s);
        gone = flush_out(s) < 0;
      }
      if (gone || !s->is_active) {
        *link = s->next_active;
        if (gone) drop(s);
      } else {
        link = &s->next_active;
      }
    }
  }
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  fprintf(stderr, "{\"tokens\": %llu, \"chunks\": %llu, \"requests\": %llu, \"late\": %llu, \"latest_ms\": %.1f, \"blocked\": %llu, \"cpu_s\": %.2f}\n",
          (unsigned long long)tokens, (unsigned long long)chunks, (unsigned long long)requests, (unsigned long long)late, latest_ms,
          (unsigned long long)blocked, usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6 + usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6);
  return 0;
}
